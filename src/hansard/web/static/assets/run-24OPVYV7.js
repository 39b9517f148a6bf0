import{b as r}from"./chunk-GU52D3NE.js";import{m18 as e}from"./core-RV472LVC.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
