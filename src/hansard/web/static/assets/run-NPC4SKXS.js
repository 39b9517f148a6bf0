import{b as r}from"./chunk-SSEWWLEC.js";import{m18 as e}from"./core-3JWY3KPS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
