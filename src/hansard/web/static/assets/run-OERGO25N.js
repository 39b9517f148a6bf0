import{b as r}from"./chunk-3BFGGE5P.js";import{m18 as e}from"./core-R3BSU76C.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
